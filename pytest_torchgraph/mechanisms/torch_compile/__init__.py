"""Graphs by torch.compile: Dynamo's, those of AOTAutograd, and inductor's."""
