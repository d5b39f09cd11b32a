"""The common parts of masters and slaves: access control, the HTTP server and client, start and shutdown."""
