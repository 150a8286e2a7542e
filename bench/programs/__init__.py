"""What runs in processes of its own: workers of the peers, and one submitter per system."""
