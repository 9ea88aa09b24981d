"""Property tests without hypothesis's deadline: a busy machine must not fail a test."""

import hypothesis

hypothesis.settings.register_profile("patient", deadline=None, max_examples=60)
hypothesis.settings.load_profile("patient")
