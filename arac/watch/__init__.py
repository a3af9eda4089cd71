"""`arac watch`: a page on this machine that follows a run while it trains."""
