-- As many new tokens as there are items in the call; not a script of its own. Included first, by scripts that give any
-- out: they begin with `base`, a number, whose text is `first_token`.
--
-- KEYS  1              the counter that tokens come from
-- ARGV  3              how many there are
--
-- Tokens never go back: not when the counter is lost (then the clock is ahead of it), nor when the clock is set back
-- (then the counter is ahead).
--
-- Declared before: call.
local time = call('TIME')
local first_token = time[1] .. string.format('%06d', time[2])
local base, more = tonumber(first_token), ARGV[3] - 1
local last_token = more == 0 and first_token or string.format('%.0f', base + more)
local previous = tonumber(call('SET', KEYS[1], last_token, 'GET') or 0)
if previous and previous >= base then
  base = previous + 1
  first_token = string.format('%.0f', base)
  call('SET', KEYS[1], string.format('%.0f', base + more))
end
