-- A line that is there is taken if no entry is in it that has not expired.
ON CONFLICT (key) DO UPDATE SET
  token = greatest(l.token + 1, excluded.token), id = excluded.id, holder = excluded.holder,
  weight = excluded.weight, "limit" = excluded."limit", ttl_ms = excluded.ttl_ms,
  expires_at = excluded.expires_at, since = excluded.since, client = excluded.client, evicted = false
  WHERE NOT l.crowd AND (l.id IS NULL OR l.expires_at <= clock_timestamp())
