"""What the daemon tells of itself: pure builders of reports, and the few readings they need."""
