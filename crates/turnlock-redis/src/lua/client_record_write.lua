-- Writes a client record.
--
-- KEYS[1]  key of the client
-- ARGV[1]  record
-- ARGV[2]  time to live in milliseconds
--
-- Reply: 1
--
-- PSETEX and not SET: a user who is granted SET could acquire a plain lock, but not release it.
redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])
return 1
