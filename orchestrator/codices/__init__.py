"""The codices as they meet questions: loaded, counted, in a tier, with their floors."""
