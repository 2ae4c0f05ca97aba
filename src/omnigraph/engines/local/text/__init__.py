"""Text search in memory: analysing columns, matching words, and scoring with BM25."""
