-- What a lock looks like.
--
-- KEYS[1]  the lock
-- KEYS[2]  the token beside it, of a fenced lock
--
-- Reply: a picture: the rest of the lease in ms (-2 free, -1 without end); of each holder its owner, count, role ('' the
--        only holder) and own lease ('' none); the queue (none here); the last token ('' none); the number ('' none)
local holders = {}
for i, text in ipairs(redis.call('hgetall', KEYS[1])) do
  holders[#holders + 1] = text
  if i % 2 == 0 then
    holders[#holders + 1] = ''
    holders[#holders + 1] = ''
  end
end
local token = KEYS[2] and redis.call('get', KEYS[2])
return { redis.call('pttl', KEYS[1]), holders, {}, token or '', '' }
