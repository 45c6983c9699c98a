-- The step alone.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
return acquire_plain(KEYS[1], ARGV[1], ARGV[2])
