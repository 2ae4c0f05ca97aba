-- The reads for business intelligence for DuckDB.

-- bi1
WITH written AS (
  SELECT year(creationDate) AS y, NOT is_post AS is_comment, length,
    CASE WHEN length < 40 THEN 0 WHEN length < 80 THEN 1 WHEN length < 160 THEN 2 ELSE 3 END AS cat
  FROM message WHERE creationDate < $date AND content IS NOT NULL
)
SELECT y, is_comment, cat, count(*), avg(length), sum(length)::DOUBLE,
  count(*) / (SELECT count(*) FROM written)
FROM written GROUP BY y, is_comment, cat ORDER BY y DESC, is_comment, cat;

-- bi2
WITH used AS (
  SELECT t.tag, count(*) FILTER (m.creationDate < $date::TIMESTAMP + INTERVAL 100 DAY) AS before,
    count(*) FILTER (m.creationDate >= $date::TIMESTAMP + INTERVAL 100 DAY) AS after
  FROM message m JOIN message_tag t ON t.message = m.no
  WHERE m.creationDate >= $date AND m.creationDate < $date::TIMESTAMP + INTERVAL 200 DAY
    AND t.tag IN (SELECT g.no FROM tag g JOIN tag_class c ON c.no = g.class WHERE c.name = $tagClass)
  GROUP BY t.tag
)
SELECT g.name, coalesce(u.before, 0) AS before, coalesce(u.after, 0) AS after,
  abs(coalesce(u.before, 0) - coalesce(u.after, 0)) AS difference
FROM tag g JOIN tag_class c ON c.no = g.class LEFT JOIN used u ON u.tag = g.no
WHERE c.name = $tagClass ORDER BY difference DESC, g.name LIMIT 100;

-- bi3
WITH RECURSIVE forums AS (
  SELECT f.no, f.title, f.creationDate, f.moderator FROM forum f JOIN person p ON p.no = f.moderator
  JOIN city c ON c.no = p.city JOIN country o ON o.no = c.country WHERE o.name = $country
),
thread AS (
  SELECT m.no, m.forum FROM message m JOIN forums f ON f.no = m.forum
  UNION ALL SELECT m.no, t.forum FROM thread t JOIN message m ON m.parent = t.no
)
SELECT f.no, f.title, f.creationDate, f.moderator, count(*) AS messages
FROM thread t JOIN forums f ON f.no = t.forum
WHERE t.no IN (
  SELECT e.message FROM message_tag e JOIN tag g ON g.no = e.tag JOIN tag_class c ON c.no = g.class
  WHERE c.name = $tagClass
)
GROUP BY ALL ORDER BY messages DESC, f.no LIMIT 20;

-- bi4
WITH RECURSIVE by_country AS (
  SELECT f.no, c.country, count(*) AS members FROM forum f JOIN member e ON e.forum = f.no
  JOIN person p ON p.no = e.person JOIN city c ON c.no = p.city
  WHERE f.creationDate > $date GROUP BY f.no, c.country
),
forums AS (
  SELECT no FROM by_country GROUP BY no ORDER BY max(members) DESC, no LIMIT 100
),
thread AS (
  SELECT m.no, m.creator FROM message m JOIN forums f ON f.no = m.forum
  UNION ALL SELECT m.no, m.creator FROM thread t JOIN message m ON m.parent = t.no
),
written AS (SELECT creator, count(*) AS messages FROM thread GROUP BY creator)
SELECT p.no, p.firstName, p.lastName, p.creationDate, coalesce(w.messages, 0) AS messages
FROM person p LEFT JOIN written w ON w.creator = p.no
WHERE p.no IN (SELECT e.person FROM member e JOIN forums f ON f.no = e.forum)
ORDER BY messages DESC, p.no LIMIT 100;

-- bi5
WITH tagged AS (
  SELECT m.no, m.creator FROM message m JOIN message_tag t ON t.message = m.no
  JOIN tag g ON g.no = t.tag WHERE g.name = $tag
),
replied AS (
  SELECT c.parent AS no, count(*) AS n FROM message c
  WHERE c.parent IN (SELECT no FROM tagged) GROUP BY c.parent
),
liked AS (
  SELECT l.message AS no, count(*) AS n FROM likes l
  WHERE l.message IN (SELECT no FROM tagged) GROUP BY l.message
)
SELECT t.creator, coalesce(sum(r.n), 0)::BIGINT AS replies, coalesce(sum(l.n), 0)::BIGINT AS likes,
  count(*) AS messages, messages + 2 * replies + 10 * likes AS score
FROM tagged t LEFT JOIN replied r USING (no) LEFT JOIN liked l USING (no)
GROUP BY t.creator ORDER BY score DESC, t.creator LIMIT 100;

-- bi6
WITH fans AS (
  SELECT DISTINCT m.creator AS author, l.person AS fan
  FROM message m JOIN message_tag t ON t.message = m.no JOIN tag g ON g.no = t.tag
  LEFT JOIN likes l ON l.message = m.no WHERE g.name = $tag
),
popularity AS (
  SELECT m.creator AS fan, count(*) AS n FROM message m JOIN likes l ON l.message = m.no
  WHERE m.creator IN (SELECT fan FROM fans) GROUP BY m.creator
)
SELECT f.author, coalesce(sum(p.n), 0)::BIGINT AS authority
FROM fans f LEFT JOIN popularity p USING (fan)
GROUP BY f.author ORDER BY authority DESC, f.author LIMIT 100;

-- bi7
WITH tagged AS (
  SELECT t.message AS no FROM message_tag t JOIN tag g ON g.no = t.tag WHERE g.name = $tag
),
replies AS (
  SELECT c.no FROM message c JOIN tagged t ON t.no = c.parent
  WHERE c.no NOT IN (SELECT no FROM tagged)
)
SELECT g.name, count(*) AS replies FROM replies r JOIN message_tag t ON t.message = r.no
JOIN tag g ON g.no = t.tag GROUP BY g.name ORDER BY replies DESC, g.name LIMIT 100;

-- bi8
WITH points AS (
  SELECT i.person, 100 AS n FROM interest i JOIN tag g ON g.no = i.tag WHERE g.name = $tag
  UNION ALL
  SELECT m.creator, 1 FROM message m JOIN message_tag t ON t.message = m.no JOIN tag g ON g.no = t.tag
  WHERE g.name = $tag AND m.creationDate > $startDate AND m.creationDate < $endDate
),
scores AS (SELECT person, sum(n)::BIGINT AS score FROM points GROUP BY person),
friends AS (
  SELECT k.a AS person, sum(f.score)::BIGINT AS score
  FROM knows k JOIN scores f ON f.person = k.b GROUP BY k.a
)
SELECT s.person, s.score, coalesce(f.score, 0) AS friends, s.score + friends AS total
FROM scores s LEFT JOIN friends f ON f.person = s.person
ORDER BY total DESC, s.person LIMIT 100;

-- bi9
WITH RECURSIVE thread AS (
  SELECT no, creator FROM message
  WHERE is_post AND creationDate >= $startDate AND creationDate <= $endDate
  UNION ALL
  SELECT m.no, t.creator FROM thread t JOIN message m ON m.parent = t.no
  WHERE m.creationDate >= $startDate AND m.creationDate <= $endDate
),
threads AS (
  SELECT creator, count(*) AS n FROM message
  WHERE is_post AND creationDate >= $startDate AND creationDate <= $endDate GROUP BY creator
),
messages AS (SELECT creator, count(*) AS n FROM thread GROUP BY creator)
SELECT p.no, p.firstName, p.lastName, t.n, m.n FROM messages m JOIN threads t USING (creator)
JOIN person p ON p.no = m.creator ORDER BY m.n DESC, p.no LIMIT 100;

-- bi10
WITH RECURSIVE reached(person, distance) USING KEY (person) AS (
  SELECT $person::BIGINT, 0
  UNION
  SELECT k.b, r.distance + 1 FROM reached r JOIN knows k ON k.a = r.person
  WHERE r.distance < $far
    AND NOT EXISTS (SELECT 1 FROM recurring.reached s WHERE s.person = k.b)
),
experts AS (
  SELECT r.person FROM reached r JOIN person p ON p.no = r.person JOIN city c ON c.no = p.city
  JOIN country o ON o.no = c.country WHERE o.name = $country AND r.distance >= $near
),
written AS (
  SELECT m.no, m.creator FROM message m JOIN experts e ON e.person = m.creator
  WHERE m.no IN (
    SELECT t.message FROM message_tag t JOIN tag g ON g.no = t.tag
    JOIN tag_class c ON c.no = g.class WHERE c.name = $tagClass
  )
)
SELECT w.creator, g.name, count(*) AS messages FROM written w
JOIN message_tag t ON t.message = w.no JOIN tag g ON g.no = t.tag
GROUP BY w.creator, g.name ORDER BY messages DESC, g.name, w.creator LIMIT 100;

-- bi11
WITH near AS (
  SELECT k.a, k.b FROM knows k JOIN person p ON p.no = k.a JOIN city c ON c.no = p.city
  JOIN country o ON o.no = c.country JOIN person q ON q.no = k.b JOIN city d ON d.no = q.city
  WHERE o.name = $country AND d.country = o.no AND k.a < k.b
    AND k.creationDate >= $startDate AND k.creationDate <= $endDate
)
SELECT count(*) FROM near ab JOIN near bc ON bc.a = ab.b JOIN near ac ON ac.a = ab.a AND ac.b = bc.b;

-- bi12
WITH RECURSIVE thread AS (
  SELECT no FROM message WHERE is_post AND list_contains($languages, language)
  UNION ALL SELECT m.no FROM thread t JOIN message m ON m.parent = t.no
),
written AS (
  SELECT m.creator, count(*) AS n FROM thread t JOIN message m ON m.no = t.no
  WHERE m.content IS NOT NULL AND m.length < $length AND m.creationDate > $startDate
  GROUP BY m.creator
)
SELECT coalesce(w.n, 0) AS messages, count(*) AS people
FROM person p LEFT JOIN written w ON w.creator = p.no
GROUP BY messages ORDER BY people DESC, messages DESC;

-- bi13
WITH written AS (
  SELECT creator, count(*) AS n FROM message WHERE creationDate < $endDate GROUP BY creator
),
zombies AS (
  SELECT p.no FROM person p JOIN city c ON c.no = p.city JOIN country o ON o.no = c.country
  LEFT JOIN written w ON w.creator = p.no
  WHERE o.name = $country AND p.creationDate < $endDate AND coalesce(w.n, 0) <
    12 * (year($endDate::TIMESTAMP) - year(p.creationDate))
      + month($endDate::TIMESTAMP) - month(p.creationDate) + 1
),
liked AS (
  SELECT m.creator, count(*) FILTER (l.person IN (SELECT no FROM zombies)) AS of_zombies,
    count(*) FILTER (f.creationDate < $endDate) AS n
  FROM message m JOIN zombies z ON z.no = m.creator JOIN likes l ON l.message = m.no
  JOIN person f ON f.no = l.person GROUP BY m.creator
)
SELECT z.no, coalesce(l.of_zombies, 0), coalesce(l.n, 0), coalesce(l.of_zombies / l.n, 0) AS score
FROM zombies z LEFT JOIN liked l ON l.creator = z.no ORDER BY score DESC, z.no LIMIT 100;

-- bi14
WITH pairs AS (
  SELECT k.a, k.b, c.name AS city
  FROM knows k JOIN person p ON p.no = k.a JOIN city c ON c.no = p.city
  JOIN country o ON o.no = c.country JOIN person q ON q.no = k.b JOIN city d ON d.no = q.city
  JOIN country u ON u.no = d.country WHERE o.name = $country1 AND u.name = $country2
),
replied AS (
  SELECT DISTINCT c.creator AS one, m.creator AS other FROM message c JOIN message m ON m.no = c.parent
),
liked AS (
  SELECT DISTINCT l.person AS one, m.creator AS other FROM likes l JOIN message m ON m.no = l.message
),
scores AS (
  SELECT s.a, s.b, s.city, CASE WHEN r.one IS NULL THEN 0 ELSE 4 END
    + CASE WHEN b.one IS NULL THEN 0 ELSE 1 END + CASE WHEN l.one IS NULL THEN 0 ELSE 10 END
    + CASE WHEN k.one IS NULL THEN 0 ELSE 1 END AS score
  FROM pairs s
  LEFT JOIN replied r ON r.one = s.a AND r.other = s.b
  LEFT JOIN replied b ON b.one = s.b AND b.other = s.a
  LEFT JOIN liked l ON l.one = s.a AND l.other = s.b
  LEFT JOIN liked k ON k.one = s.b AND k.other = s.a
  QUALIFY row_number() OVER (PARTITION BY s.city ORDER BY score DESC, s.a, s.b) = 1
)
SELECT a, b, city, score FROM scores ORDER BY score DESC, a, b LIMIT 100;

-- bi14
WITH pairs AS (
  SELECT k.a, k.b, c.name AS city
  FROM knows k JOIN person p ON p.no = k.a JOIN city c ON c.no = p.city
  JOIN country o ON o.no = c.country JOIN person q ON q.no = k.b JOIN city d ON d.no = q.city
  JOIN country u ON u.no = d.country WHERE o.name = $country1 AND u.name = $country2
),
points AS (
  SELECT DISTINCT s.a, s.b, 4 AS n FROM pairs s JOIN message c ON c.creator = s.a
  JOIN message m ON m.no = c.parent AND m.creator = s.b
  UNION ALL SELECT DISTINCT s.a, s.b, 1 FROM pairs s JOIN message c ON c.creator = s.b
  JOIN message m ON m.no = c.parent AND m.creator = s.a
  UNION ALL SELECT DISTINCT s.a, s.b, 10 FROM pairs s JOIN likes l ON l.person = s.a
  JOIN message m ON m.no = l.message AND m.creator = s.b
  UNION ALL SELECT DISTINCT s.a, s.b, 1 FROM pairs s JOIN likes l ON l.person = s.b
  JOIN message m ON m.no = l.message AND m.creator = s.a
),
scores AS (
  SELECT s.a, s.b, s.city, coalesce(sum(p.n), 0)::BIGINT AS score
  FROM pairs s LEFT JOIN points p ON p.a = s.a AND p.b = s.b GROUP BY s.a, s.b, s.city
  QUALIFY row_number() OVER (PARTITION BY s.city ORDER BY score DESC, s.a, s.b) = 1
)
SELECT a, b, city, score FROM scores ORDER BY score DESC, a, b LIMIT 100;

-- bi15
WITH RECURSIVE thread AS (
  SELECT m.no, m.creator, m.is_post FROM message m JOIN forum f ON f.no = m.forum
  WHERE f.creationDate >= $startDate AND f.creationDate <= $endDate
  UNION ALL SELECT m.no, m.creator, m.is_post FROM thread t JOIN message m ON m.parent = t.no
),
replied AS (
  SELECT c.creator AS a, t.creator AS b, sum(if(t.is_post, 2, 1)) / 2.0::DOUBLE AS n
  FROM thread t JOIN message c ON c.parent = t.no GROUP BY 1, 2
),
weighted AS (
  SELECT k.a, k.b, 1 / (1 + coalesce(r.n, 0) + coalesce(s.n, 0)) AS weight
  FROM knows k LEFT JOIN replied r ON r.a = k.a AND r.b = k.b
  LEFT JOIN replied s ON s.a = k.b AND s.b = k.a
),
reached(person, cost) USING KEY (person) AS (
  SELECT $one::BIGINT, 0.0::DOUBLE
  UNION
  SELECT w.b, min(r.cost + w.weight) FROM reached r JOIN weighted w ON w.a = r.person
  WHERE NOT EXISTS (
    SELECT 1 FROM recurring.reached s WHERE s.person = w.b AND s.cost <= r.cost + w.weight
  )
  GROUP BY w.b
)
SELECT coalesce(max(cost), -1) FROM reached WHERE person = $other;

-- bi16
WITH written AS (
  SELECT m.creator AS person, 1 AS part, count(*) AS n
  FROM message m JOIN message_tag t ON t.message = m.no JOIN tag g ON g.no = t.tag
  WHERE g.name = $tagA AND m.creationDate >= $dateA
    AND m.creationDate < $dateA::TIMESTAMP + INTERVAL 1 DAY
  GROUP BY m.creator
  UNION ALL
  SELECT m.creator, 2, count(*)
  FROM message m JOIN message_tag t ON t.message = m.no JOIN tag g ON g.no = t.tag
  WHERE g.name = $tagB AND m.creationDate >= $dateB
    AND m.creationDate < $dateB::TIMESTAMP + INTERVAL 1 DAY
  GROUP BY m.creator
),
lonely AS (
  SELECT w.person, w.part, w.n FROM written w LEFT JOIN (
    SELECT k.a AS person, f.part, count(*) AS friends FROM knows k JOIN written f ON f.person = k.b
    GROUP BY k.a, f.part
  ) f ON f.person = w.person AND f.part = w.part
  WHERE coalesce(f.friends, 0) <= $friends
)
SELECT a.person, a.n, b.n, a.n + b.n AS total FROM lonely a JOIN lonely b ON b.person = a.person
WHERE a.part = 1 AND b.part = 2 ORDER BY total DESC, a.person LIMIT 20;

-- bi17
WITH RECURSIVE tagged AS (
  SELECT m.no, m.creator, m.creationDate, m.parent, m.forum FROM message m
  JOIN message_tag t ON t.message = m.no JOIN tag g ON g.no = t.tag WHERE g.name = $tag
),
chain AS (
  SELECT no, parent, forum FROM tagged
  UNION ALL SELECT c.no, m.parent, m.forum FROM chain c JOIN message m ON m.no = c.parent
),
placed AS (
  SELECT t.no, t.creator, t.creationDate, t.parent, c.forum
  FROM tagged t JOIN chain c ON c.no = t.no AND c.forum IS NOT NULL
),
spread AS (
  SELECT s.no, s.creationDate, s.forum, s.creator AS x, r.creator AS y
  FROM placed s JOIN placed r ON r.parent = s.no WHERE s.creator <> r.creator
),
meeting AS (
  SELECT DISTINCT s.no, s.creationDate, s.forum AS other, s.x, s.y, a.forum
  FROM spread s JOIN member a ON a.person = s.x JOIN member b ON b.person = s.y AND b.forum = a.forum
  WHERE a.forum <> s.forum
)
SELECT f.creator, count(DISTINCT s.no) AS messages
FROM placed f JOIN meeting s ON s.forum = f.forum
WHERE s.creationDate > f.creationDate + to_hours($hours) AND f.creator <> s.x AND f.creator <> s.y
  AND NOT EXISTS (SELECT 1 FROM member e WHERE e.forum = s.other AND e.person = f.creator)
GROUP BY f.creator ORDER BY messages DESC, f.creator LIMIT 10;

-- bi18
WITH fans AS (SELECT i.person FROM interest i JOIN tag g ON g.no = i.tag WHERE g.name = $tag)
SELECT k.a, l.b, count(*) AS in_common FROM fans f JOIN knows k ON k.a = f.person
JOIN knows l ON l.a = k.b JOIN fans g ON g.person = l.b
WHERE k.a <> l.b AND NOT EXISTS (SELECT 1 FROM knows n WHERE n.a = k.a AND n.b = l.b)
GROUP BY k.a, l.b ORDER BY in_common DESC, k.a, l.b LIMIT 20;

-- bi19
WITH RECURSIVE replied AS (
  SELECT c.creator AS a, m.creator AS b, count(*) AS n
  FROM message c JOIN message m ON m.no = c.parent GROUP BY 1, 2
),
weighted AS (
  SELECT k.a, k.b, greatest(round(40 - sqrt(coalesce(r.n, 0) + coalesce(s.n, 0))), 1) AS weight
  FROM knows k LEFT JOIN replied r ON r.a = k.a AND r.b = k.b
  LEFT JOIN replied s ON s.a = k.b AND s.b = k.a
  WHERE r.n IS NOT NULL OR s.n IS NOT NULL
),
reached(a, person, cost) USING KEY (a, person) AS (
  SELECT p.no, p.no, 0.0::DOUBLE FROM person p JOIN city c ON c.no = p.city WHERE c.name = $city1
  UNION
  SELECT r.a, w.b, min(r.cost + w.weight) FROM reached r JOIN weighted w ON w.a = r.person
  WHERE NOT EXISTS (
    SELECT 1 FROM recurring.reached s
    WHERE s.a = r.a AND s.person = w.b AND s.cost <= r.cost + w.weight
  )
  GROUP BY r.a, w.b
)
SELECT r.a, r.person, r.cost FROM reached r JOIN person p ON p.no = r.person
JOIN city c ON c.no = p.city WHERE c.name = $city2 ORDER BY r.cost, r.a, r.person LIMIT 20;

-- bi20
WITH RECURSIVE weighted AS (
  SELECT k.a, k.b, 1 + min(abs(s.classYear - t.classYear)) AS weight
  FROM knows k JOIN study s ON s.person = k.a
  JOIN study t ON t.person = k.b AND t.university = s.university GROUP BY k.a, k.b
),
reached(person, cost) USING KEY (person) AS (
  SELECT $person::BIGINT, 0.0::DOUBLE
  UNION
  SELECT w.b, min(r.cost + w.weight) FROM reached r JOIN weighted w ON w.a = r.person
  WHERE NOT EXISTS (
    SELECT 1 FROM recurring.reached s WHERE s.person = w.b AND s.cost <= r.cost + w.weight
  )
  GROUP BY w.b
)
SELECT r.person, r.cost FROM reached r JOIN work e ON e.person = r.person
JOIN company c ON c.no = e.company WHERE c.name = $company AND r.person <> $person
ORDER BY r.cost, r.person LIMIT 20;
