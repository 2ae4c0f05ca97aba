// The reads for business intelligence for Kuzu.
