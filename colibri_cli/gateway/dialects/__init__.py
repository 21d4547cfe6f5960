"""One module per vendor's JSON: requests in, answers and streams out. No sockets, no engine."""
