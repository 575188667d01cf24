"""Graphs captured by torch.compile: from Dynamo, AOTAutograd and inductor."""
