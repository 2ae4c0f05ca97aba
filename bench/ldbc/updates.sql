-- The updates for DuckDB, each some statements of one transaction; then what they have added.

-- iu1
INSERT INTO person (no, firstName, lastName, gender, birthday, creationDate, locationIP, browserUsed,
  email, speaks, city) VALUES ($person, $firstName, $lastName, $gender, $birthday, $creationDate,
  $locationIP, $browserUsed, $email, $speaks, $city);
INSERT INTO interest (person, tag) SELECT $person, unnest($tags::BIGINT[]);
INSERT INTO study (person, university, classYear) SELECT $person, s.university, s.year FROM
  (SELECT unnest($studies::STRUCT(university BIGINT, year INTEGER)[]) AS s);
INSERT INTO work (person, company, workFrom) SELECT $person, w.company, w.year FROM
  (SELECT unnest($work::STRUCT(company BIGINT, year INTEGER)[]) AS w);

-- iu2
INSERT INTO likes (person, message, creationDate) VALUES ($person, $message, $creationDate);

-- iu3
INSERT INTO likes (person, message, creationDate) VALUES ($person, $message, $creationDate);

-- iu4
INSERT INTO forum (no, title, creationDate, moderator)
  VALUES ($forum, $title, $creationDate, $person);
INSERT INTO forum_tag (forum, tag) SELECT $forum, unnest($tags::BIGINT[]);

-- iu5
INSERT INTO member (forum, person, joinDate) VALUES ($forum, $person, $creationDate);

-- iu6
INSERT INTO message (no, creationDate, content, imageFile, length, browserUsed, locationIP, language,
  is_post, forum, parent, creator, country) VALUES ($message, $creationDate, $content, $imageFile,
  $length, $browserUsed, $locationIP, $language, true, $forum, NULL, $person, $country);
INSERT INTO message_tag (message, tag) SELECT $message, unnest($tags::BIGINT[]);

-- iu7
INSERT INTO message (no, creationDate, content, imageFile, length, browserUsed, locationIP, language,
  is_post, forum, parent, creator, country) VALUES ($message, $creationDate, $content, NULL,
  $length, $browserUsed, $locationIP, NULL, false, NULL, $parent, $person, $country);
INSERT INTO message_tag (message, tag) SELECT $message, unnest($tags::BIGINT[]);

-- iu8
INSERT INTO knows (a, b, creationDate)
  VALUES ($person, $other, $creationDate), ($other, $person, $creationDate);

-- added_people
SELECT p.no, p.firstName, p.lastName, p.gender, p.birthday, p.creationDate, p.locationIP,
  p.browserUsed, p.email, p.speaks, p.city,
  (SELECT coalesce(list(i.tag ORDER BY i.tag), []) FROM interest i WHERE i.person = p.no),
  (SELECT coalesce(list({'university': s.university, 'year': s.classYear} ORDER BY s.university), [])
    FROM study s WHERE s.person = p.no),
  (SELECT coalesce(list({'company': w.company, 'year': w.workFrom} ORDER BY w.company), [])
    FROM work w WHERE w.person = p.no)
FROM person p WHERE p.creationDate >= $since ORDER BY p.no;

-- added_friendships
SELECT a, b, creationDate FROM knows WHERE creationDate >= $since AND a < b ORDER BY a, b;

-- added_likes
SELECT person, message, creationDate FROM likes WHERE creationDate >= $since
ORDER BY creationDate, person, message;

-- added_forums
SELECT f.no, f.title, f.creationDate, f.moderator,
  (SELECT coalesce(list(t.tag ORDER BY t.tag), []) FROM forum_tag t WHERE t.forum = f.no)
FROM forum f WHERE f.creationDate >= $since ORDER BY f.no;

-- added_members
SELECT forum, person, joinDate FROM member WHERE joinDate >= $since ORDER BY forum, person;

-- added_posts
SELECT m.no, m.creationDate, m.content, m.imageFile, m.length, m.browserUsed, m.locationIP,
  m.language, m.creator, m.country, m.forum,
  (SELECT coalesce(list(t.tag ORDER BY t.tag), []) FROM message_tag t WHERE t.message = m.no)
FROM message m WHERE m.is_post AND m.creationDate >= $since ORDER BY m.no;

-- added_comments
SELECT m.no, m.creationDate, m.content, m.length, m.browserUsed, m.locationIP, m.creator, m.country,
  m.parent,
  (SELECT coalesce(list(t.tag ORDER BY t.tag), []) FROM message_tag t WHERE t.message = m.no)
FROM message m WHERE NOT m.is_post AND m.creationDate >= $since ORDER BY m.no;
