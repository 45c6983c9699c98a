-- The step alone.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  target hold count
-- ARGV[3]  lease in milliseconds
return acquire(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
