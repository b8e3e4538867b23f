"""The self-contained HTML page and the leaderboard site."""
