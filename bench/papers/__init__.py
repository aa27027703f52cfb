"""Figures of the papers that MeshServe follows, one folder for each paper."""
