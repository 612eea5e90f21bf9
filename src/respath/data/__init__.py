"""Data: from packages, folders or hub repositories to token shards."""
