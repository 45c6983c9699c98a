-- Runs the release step alone. Reply: see plain_release_step.lua.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
return release_plain(KEYS[1], ARGV[1])
