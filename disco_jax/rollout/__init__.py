"""Grouped rollouts: prefill once per question, decode many steps per dispatch."""
