"""The objective as a pure function of log-probabilities."""
