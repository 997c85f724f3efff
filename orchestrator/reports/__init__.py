"""What the daemon reports of itself: pure builders of reports, and the few readings they need."""
