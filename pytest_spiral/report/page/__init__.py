"""The page: a report as one HTML file which opens from disk, asks the network for nothing and runs nothing it shows."""
