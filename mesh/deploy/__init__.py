"""Renders a topology as what starts it elsewhere: manifests, scripts and units. Nothing here talks to a cluster."""
