"""The durable workflow engine: store, runners, worker and site databases."""
