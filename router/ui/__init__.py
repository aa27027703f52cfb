"""The page that shows the mesh: files that the admin address serves at ``/ui/``. See `docs/guides/see-it.md`."""
