"""What there is to find: the gateway's own tools, which tell about servers and the tools behind them."""
