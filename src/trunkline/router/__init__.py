"""Routes calls to sources: registry, catalog, admission, deadlines, result cache, subscriptions."""
