"""The codices as they meet questions: loaded, counted, in a coverage, with their floors."""
