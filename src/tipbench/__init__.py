"""Which small local model and which prompt should I ship? An answer with proof, on your own machine."""
