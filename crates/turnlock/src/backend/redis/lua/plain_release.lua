-- The step alone.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
return release_plain(KEYS[1], ARGV[1])
