-- Writes down who a client is.
--
-- KEYS[1]  the key of the client
-- ARGV[1]  what it says of itself
-- ARGV[2]  for how long, in milliseconds
--
-- Reply: 1
--
-- Not by SET: with the right to that, a user who is not meant to could begin with a plain lock, and not end it.
redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])
return 1
