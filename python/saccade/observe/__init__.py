"""Observes the attention of a model: statistics of layers and heads, events, and a record of both."""
