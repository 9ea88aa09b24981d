"""Text in, 0 or 1 out: the answer grader."""
