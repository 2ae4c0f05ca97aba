"""Finding Java, and starting and stopping Spark sessions."""
