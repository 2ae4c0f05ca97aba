-- The interactive reads for DuckDB. A text begins with the name of its read; a second text of the
-- same name is another form of it, of which the faster one is measured.

-- ic1
WITH start AS (SELECT b AS person FROM knows WHERE a = $person),
two AS (SELECT DISTINCT k.b AS person FROM start s JOIN knows k ON k.a = s.person),
three AS (SELECT DISTINCT k.b AS person FROM two t JOIN knows k ON k.a = t.person),
near AS (
  SELECT person, min(distance) AS distance FROM (
    SELECT person, 1 AS distance FROM start
    UNION ALL SELECT person, 2 FROM two
    UNION ALL SELECT person, 3 FROM three
  ) WHERE person <> $person GROUP BY person
),
best AS (
  SELECT p.*, n.distance FROM near n JOIN person p ON p.no = n.person
  WHERE p.firstName = $firstName ORDER BY n.distance, p.lastName, p.no LIMIT 20
)
SELECT b.no, b.lastName, b.distance, b.birthday, b.creationDate, b.gender, b.browserUsed,
  b.locationIP, b.email, b.speaks, c.name,
  (SELECT coalesce(list({'name': u.name, 'year': s.classYear, 'city': uc.name} ORDER BY u.name), [])
    FROM study s JOIN university u ON u.no = s.university JOIN city uc ON uc.no = u.city
    WHERE s.person = b.no),
  (SELECT coalesce(list({'name': o.name, 'year': w.workFrom, 'country': oc.name} ORDER BY o.name), [])
    FROM work w JOIN company o ON o.no = w.company JOIN country oc ON oc.no = o.country
    WHERE w.person = b.no)
FROM best b JOIN city c ON c.no = b.city ORDER BY b.distance, b.lastName, b.no;

-- ic2
SELECT p.no, p.firstName, p.lastName, m.no, coalesce(m.content, m.imageFile), m.creationDate
FROM knows k JOIN message m ON m.creator = k.b JOIN person p ON p.no = k.b
WHERE k.a = $person AND m.creationDate <= $maxDate
ORDER BY m.creationDate DESC, m.no LIMIT 20;

-- ic3
WITH near AS (
  SELECT b AS person FROM knows WHERE a = $person
  UNION SELECT k2.b FROM knows k1 JOIN knows k2 ON k2.a = k1.b WHERE k1.a = $person
),
abroad AS (
  SELECT p.no, p.firstName, p.lastName FROM near n JOIN person p ON p.no = n.person
  JOIN city c ON c.no = p.city JOIN country o ON o.no = c.country
  WHERE p.no <> $person AND o.name NOT IN ($countryX, $countryY)
)
SELECT a.no, a.firstName, a.lastName, count(*) FILTER (o.name = $countryX) AS x,
  count(*) FILTER (o.name = $countryY) AS y, count(*) AS total
FROM abroad a JOIN message m ON m.creator = a.no JOIN country o ON o.no = m.country
WHERE o.name IN ($countryX, $countryY)
  AND m.creationDate >= $startDate AND m.creationDate < $endDate
GROUP BY ALL HAVING x > 0 AND y > 0 ORDER BY total DESC, a.no LIMIT 20;

-- ic4
WITH used AS (
  SELECT t.tag, m.creationDate >= $startDate AS is_new
  FROM knows k JOIN message m ON m.creator = k.b JOIN message_tag t ON t.message = m.no
  WHERE k.a = $person AND m.is_post AND m.creationDate < $endDate
)
SELECT t.name, count(*) AS posts FROM used u JOIN tag t ON t.no = u.tag
GROUP BY t.name HAVING bool_and(u.is_new) ORDER BY posts DESC, t.name LIMIT 10;

-- ic5
WITH near AS (
  SELECT person FROM (
    SELECT b AS person FROM knows WHERE a = $person
    UNION SELECT k2.b FROM knows k1 JOIN knows k2 ON k2.a = k1.b WHERE k1.a = $person
  ) WHERE person <> $person
),
joined AS (
  SELECT e.forum, e.person FROM member e JOIN near USING (person) WHERE e.joinDate > $minDate
),
posts AS (
  SELECT j.forum, count(*) AS n FROM joined j
  JOIN message m ON m.forum = j.forum AND m.creator = j.person GROUP BY j.forum
)
SELECT f.title, coalesce(p.n, 0) AS n FROM (SELECT DISTINCT forum FROM joined) j
JOIN forum f ON f.no = j.forum LEFT JOIN posts p ON p.forum = j.forum
ORDER BY n DESC, f.no LIMIT 20;

-- ic6
WITH near AS (
  SELECT person FROM (
    SELECT b AS person FROM knows WHERE a = $person
    UNION SELECT k2.b FROM knows k1 JOIN knows k2 ON k2.a = k1.b WHERE k1.a = $person
  ) WHERE person <> $person
),
tagged AS (
  SELECT m.no FROM near n JOIN message m ON m.creator = n.person
  JOIN message_tag t ON t.message = m.no JOIN tag g ON g.no = t.tag
  WHERE m.is_post AND g.name = $tag
)
SELECT g.name, count(*) AS posts FROM tagged p JOIN message_tag t ON t.message = p.no
JOIN tag g ON g.no = t.tag WHERE g.name <> $tag
GROUP BY g.name ORDER BY posts DESC, g.name LIMIT 10;

-- ic7
WITH liked AS (
  SELECT l.person, l.creationDate, m.no, coalesce(m.content, m.imageFile) AS content,
    m.creationDate AS written
  FROM message m JOIN likes l ON l.message = m.no WHERE m.creator = $person
  QUALIFY row_number() OVER (PARTITION BY l.person ORDER BY l.creationDate DESC, m.no) = 1
)
SELECT p.no, p.firstName, p.lastName, l.creationDate, l.no, l.content,
  (epoch_ms(l.creationDate) - epoch_ms(l.written)) // 60000,
  NOT EXISTS (SELECT 1 FROM knows k WHERE k.a = $person AND k.b = p.no)
FROM liked l JOIN person p ON p.no = l.person ORDER BY l.creationDate DESC, p.no LIMIT 20;

-- ic8
SELECT p.no, p.firstName, p.lastName, c.creationDate, c.no, c.content
FROM message m JOIN message c ON c.parent = m.no JOIN person p ON p.no = c.creator
WHERE m.creator = $person ORDER BY c.creationDate DESC, c.no LIMIT 20;

-- ic9
WITH near AS (
  SELECT b AS person FROM knows WHERE a = $person
  UNION SELECT k2.b FROM knows k1 JOIN knows k2 ON k2.a = k1.b WHERE k1.a = $person
)
SELECT p.no, p.firstName, p.lastName, m.no, coalesce(m.content, m.imageFile), m.creationDate
FROM near n JOIN message m ON m.creator = n.person JOIN person p ON p.no = n.person
WHERE p.no <> $person AND m.creationDate < $maxDate
ORDER BY m.creationDate DESC, m.no LIMIT 20;

-- ic10
WITH friends AS (SELECT b AS person FROM knows WHERE a = $person),
candidates AS (
  SELECT DISTINCT k.b AS person FROM friends f JOIN knows k ON k.a = f.person
  WHERE k.b <> $person AND k.b NOT IN (SELECT person FROM friends)
),
born AS (
  SELECT p.* FROM candidates c JOIN person p ON p.no = c.person
  WHERE (month(p.birthday) = $month AND day(p.birthday) >= 21)
    OR (month(p.birthday) = $nextMonth AND day(p.birthday) < 22)
),
posts AS (
  SELECT m.creator, EXISTS (
      SELECT 1 FROM message_tag t JOIN interest i ON i.tag = t.tag
      WHERE i.person = $person AND t.message = m.no
    ) AS common
  FROM born b JOIN message m ON m.creator = b.no WHERE m.is_post
),
scores AS (
  SELECT creator, sum(CASE WHEN common THEN 1 ELSE -1 END)::BIGINT AS score FROM posts GROUP BY creator
)
SELECT b.no, b.firstName, b.lastName, coalesce(s.score, 0) AS score, b.gender, c.name
FROM born b LEFT JOIN scores s ON s.creator = b.no JOIN city c ON c.no = b.city
ORDER BY score DESC, b.no LIMIT 10;

-- ic11
WITH near AS (
  SELECT b AS person FROM knows WHERE a = $person
  UNION SELECT k2.b FROM knows k1 JOIN knows k2 ON k2.a = k1.b WHERE k1.a = $person
)
SELECT p.no, p.firstName, p.lastName, o.name, w.workFrom
FROM near n JOIN person p ON p.no = n.person JOIN work w ON w.person = p.no
JOIN company o ON o.no = w.company JOIN country c ON c.no = o.country
WHERE p.no <> $person AND c.name = $country AND w.workFrom < $year
ORDER BY w.workFrom, p.no, o.name DESC LIMIT 10;

-- ic12
WITH RECURSIVE classes AS (
  SELECT no FROM tag_class WHERE name = $tagClass
  UNION SELECT t.no FROM tag_class t JOIN classes c ON t.parent = c.no
),
tags AS (SELECT t.no, t.name FROM tag t JOIN classes c ON c.no = t.class)
SELECT p.no, p.firstName, p.lastName, list_sort(list(DISTINCT t.name)), count(DISTINCT c.no) AS replies
FROM knows k JOIN person p ON p.no = k.b JOIN message c ON c.creator = p.no
JOIN message m ON m.no = c.parent JOIN message_tag e ON e.message = m.no JOIN tags t ON t.no = e.tag
WHERE k.a = $person AND m.is_post
GROUP BY p.no, p.firstName, p.lastName ORDER BY replies DESC, p.no LIMIT 20;

-- ic13
WITH RECURSIVE reached(person, distance) USING KEY (person) AS (
  SELECT $one::BIGINT, 0
  UNION
  SELECT k.b, r.distance + 1 FROM reached r JOIN knows k ON k.a = r.person
  WHERE NOT EXISTS (SELECT 1 FROM recurring.reached s WHERE s.person = k.b)
    AND NOT EXISTS (SELECT 1 FROM recurring.reached s WHERE s.person = $other)
)
SELECT coalesce(max(distance), -1) FROM reached WHERE person = $other;

-- ic14
WITH RECURSIVE reached(person, distance) USING KEY (person) AS (
  SELECT $one::BIGINT, 0
  UNION
  SELECT k.b, r.distance + 1 FROM reached r JOIN knows k ON k.a = r.person
  WHERE NOT EXISTS (SELECT 1 FROM recurring.reached s WHERE s.person = k.b)
    AND NOT EXISTS (SELECT 1 FROM recurring.reached s WHERE s.person = $other)
),
paths(person, distance, path) AS (
  SELECT person, distance, [person] FROM reached WHERE person = $other
  UNION ALL
  SELECT r.person, r.distance, list_prepend(r.person, p.path)
  FROM paths p JOIN knows k ON k.a = p.person
  JOIN reached r ON r.person = k.b AND r.distance = p.distance - 1
),
steps AS (
  SELECT path, unnest(path[:-2]) AS a, unnest(path[2:]) AS b FROM paths WHERE person = $one
),
pairs AS (SELECT DISTINCT a, b FROM steps),
weights AS (
  SELECT s.a, s.b, sum(CASE WHEN m.is_post THEN 1.0 ELSE 0.5 END) AS weight
  FROM pairs s JOIN message c ON c.creator IN (s.a, s.b) JOIN message m ON m.no = c.parent
  WHERE m.creator = CASE WHEN c.creator = s.a THEN s.b ELSE s.a END
  GROUP BY s.a, s.b
)
SELECT s.path::VARCHAR[] AS people, coalesce(sum(w.weight), 0)::DOUBLE AS weight
FROM steps s LEFT JOIN weights w ON w.a = s.a AND w.b = s.b
GROUP BY s.path ORDER BY weight DESC, people;

-- is1
SELECT firstName, lastName, birthday, locationIP, browserUsed, city, gender, creationDate
FROM person WHERE no = $person;

-- is2
WITH RECURSIVE recent AS (
  SELECT no, coalesce(content, imageFile) AS content, creationDate, parent FROM message
  WHERE creator = $person ORDER BY creationDate DESC, no DESC LIMIT 10
),
chain AS (
  SELECT no, no AS root, parent FROM recent
  UNION ALL
  SELECT c.no, m.no, m.parent FROM chain c JOIN message m ON m.no = c.parent
)
SELECT r.no, r.content, r.creationDate, c.root, p.no, p.firstName, p.lastName
FROM recent r JOIN chain c ON c.no = r.no AND c.parent IS NULL
JOIN message m ON m.no = c.root JOIN person p ON p.no = m.creator
ORDER BY r.creationDate DESC, r.no DESC;

-- is3
SELECT p.no, p.firstName, p.lastName, k.creationDate
FROM knows k JOIN person p ON p.no = k.b WHERE k.a = $person
ORDER BY k.creationDate DESC, p.no;

-- is4
SELECT creationDate, coalesce(content, imageFile) FROM message WHERE no = $message;

-- is5
SELECT p.no, p.firstName, p.lastName FROM message m JOIN person p ON p.no = m.creator
WHERE m.no = $message;

-- is6
WITH RECURSIVE chain AS (
  SELECT no, parent, forum FROM message WHERE no = $message
  UNION ALL
  SELECT m.no, m.parent, m.forum FROM chain c JOIN message m ON m.no = c.parent
)
SELECT f.no, f.title, p.no, p.firstName, p.lastName
FROM chain c JOIN forum f ON f.no = c.forum JOIN person p ON p.no = f.moderator;

-- is7
SELECT c.no, c.content, c.creationDate, p.no, p.firstName, p.lastName,
  EXISTS (SELECT 1 FROM knows k WHERE k.a = m.creator AND k.b = p.no)
FROM message c JOIN person p ON p.no = c.creator JOIN message m ON m.no = c.parent
WHERE c.parent = $message ORDER BY c.creationDate DESC, p.no, c.no;
