"""Spans of requests for OpenTelemetry, made from their timelines when they have ended."""
