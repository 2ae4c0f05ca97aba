"""The write path: capture, stage, validate, own, publish, and recover interrupted writes."""
