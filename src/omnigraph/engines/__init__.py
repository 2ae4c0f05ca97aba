"""The engines: two ways to run one typed plan over one snapshot."""
