"""Tombolo inside trainers and engines: one module each, over tombolo.Core. docs/integrations has a page of
each. No framework is imported before its module is used."""
