-- await says where a claim stands, and takes out of its line what has expired.
--
-- ARGV  id
-- It answers 'g…', 'w…' or 'x…' as enter does.
return each(function(id)
  rules().fresh()
  return r.standing(id)
end)
