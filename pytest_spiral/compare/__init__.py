"""Two runs side by side: loading, pairing and estimates."""
