// The reads for business intelligence for Kuzu. bi4, bi12 and bi17 follow the replies to very many
// messages and are left out: one ask of bi4 or bi12 takes 5 to 15 s at small scale, and bi17 seconds on 60 people.

// bi1
MATCH (x:Message) WHERE x.creationDate < $date AND x.content IS NOT NULL
WITH count(*) AS total
MATCH (m:Message) WHERE m.creationDate < $date AND m.content IS NOT NULL
WITH total, date_part('year', m.creationDate) AS year, NOT m.isPost AS isComment,
  CASE WHEN m.length < 40 THEN 0 WHEN m.length < 80 THEN 1 WHEN m.length < 160 THEN 2 ELSE 3 END
  AS category, count(*) AS n, avg(m.length) AS mean, CAST(sum(m.length) AS DOUBLE) AS length
RETURN year, isComment, category, n, mean, length, CAST(n AS DOUBLE) / total
ORDER BY year DESC, isComment, category;

// bi2
MATCH (t:Tag)-[:HasType]->(:TagClass {name: $tagClass})
OPTIONAL MATCH (m:Message)-[:HasTag]->(t)
WHERE m.creationDate >= $date AND m.creationDate < $date + INTERVAL('200 days')
WITH t.name AS name,
  sum(CASE WHEN m.creationDate < $date + INTERVAL('100 days') THEN 1 ELSE 0 END) AS before,
  sum(CASE WHEN m.creationDate >= $date + INTERVAL('100 days') THEN 1 ELSE 0 END) AS after
RETURN name, CAST(before AS INT64), CAST(after AS INT64), CAST(abs(before - after) AS INT64) AS d
ORDER BY d DESC, name LIMIT 100;

// bi3
MATCH (:TagClass {name: $tagClass})<-[:HasType]-(:Tag)<-[:HasTag]-(m:Message) WITH DISTINCT m
MATCH (m)-[:ReplyOf*0..30]->(o:Message) WHERE o.isPost
MATCH (o)<-[:ContainerOf]-(f:Forum)-[:HasModerator]->(p:Person)-[:PersonIsLocatedIn]->(:City)
  -[:IsPartOf_City]->(:Country {name: $country})
RETURN f.no AS no, f.title, f.creationDate, p.no, count(*) AS messages
ORDER BY messages DESC, no LIMIT 20;

// bi5
MATCH (:Tag {name: $tag})<-[:HasTag]-(m:Message)-[:HasCreator]->(p:Person)
OPTIONAL MATCH (m)<-[:ReplyOf]-(c:Message)
WITH p, m, count(c.no) AS replied
OPTIONAL MATCH (m)<-[l:Likes]-(x:Person)
WITH p, m, replied, count(x.no) AS liked
WITH p.no AS no, CAST(sum(replied) AS INT64) AS replies, CAST(sum(liked) AS INT64) AS likes,
  count(*) AS messages
RETURN no, replies, likes, messages, messages + 2 * replies + 10 * likes AS score
ORDER BY score DESC, no LIMIT 100;

// bi6
MATCH (:Tag {name: $tag})<-[:HasTag]-(m:Message)-[:HasCreator]->(p:Person)
OPTIONAL MATCH (m)<-[:Likes]-(f:Person)
WITH DISTINCT p, f
OPTIONAL MATCH (f)<-[:HasCreator]-(x:Message)<-[l:Likes]-(y:Person)
RETURN p.no AS no, count(y.no) AS authority ORDER BY authority DESC, no LIMIT 100;

// bi7
MATCH (t:Tag {name: $tag})<-[:HasTag]-(m:Message)<-[:ReplyOf]-(c:Message)-[:HasTag]->(o:Tag)
WHERE NOT EXISTS { MATCH (c)-[:HasTag]->(t) }
RETURN o.name AS name, count(*) AS replies ORDER BY replies DESC, name LIMIT 100;

// bi8
MATCH (p:Person)
OPTIONAL MATCH (p)-[:HasInterest]->(t:Tag {name: $tag})
WITH p, count(t.no) AS interested
OPTIONAL MATCH (p)<-[:HasCreator]-(m:Message)-[:HasTag]->(:Tag {name: $tag})
WHERE m.creationDate > $startDate AND m.creationDate < $endDate
WITH p, interested, count(m.no) AS written
WITH p, 100 * interested + written AS score WHERE score > 0
OPTIONAL MATCH (p)-[:Knows]-(f:Person)
OPTIONAL MATCH (f)-[:HasInterest]->(t:Tag {name: $tag})
WITH p, score, f, count(t.no) AS interested
OPTIONAL MATCH (f)<-[:HasCreator]-(m:Message)-[:HasTag]->(:Tag {name: $tag})
WHERE m.creationDate > $startDate AND m.creationDate < $endDate
WITH p, score, f, interested, count(m.no) AS written
WITH p.no AS no, score, CAST(sum(100 * interested + written) AS INT64) AS friends
RETURN no, score, friends, score + friends AS total ORDER BY total DESC, no LIMIT 100;

// bi9
MATCH (p:Person)<-[:HasCreator]-(o:Message)<-[:ReplyOf*0..30]-(m:Message)
WHERE o.isPost AND o.creationDate >= $startDate AND o.creationDate <= $endDate
  AND m.creationDate >= $startDate AND m.creationDate <= $endDate
WITH p, o, count(*) AS written
RETURN p.no AS no, p.firstName, p.lastName, count(*), CAST(sum(written) AS INT64) AS messages
ORDER BY messages DESC, no LIMIT 100;

// bi10
MATCH q = (me:Person {no: $person})-[:Knows* SHORTEST 1..3]-(p:Person)
WHERE p.no <> $person AND length(q) >= $near
WITH p
MATCH (p)-[:PersonIsLocatedIn]->(:City)-[:IsPartOf_City]->(:Country {name: $country})
MATCH (p)<-[:HasCreator]-(m:Message)-[:HasTag]->(:Tag)-[:HasType]->(:TagClass {name: $tagClass})
WITH DISTINCT p, m
MATCH (m)-[:HasTag]->(t:Tag)
RETURN p.no AS no, t.name AS name, count(*) AS messages ORDER BY messages DESC, name, no LIMIT 100;

// bi11
MATCH (:Country {name: $country})<-[:IsPartOf_City]-(:City)<-[:PersonIsLocatedIn]-(p:Person)
WITH collect(p.no) AS people
MATCH (a:Person)-[x:Knows]-(b:Person)
WHERE list_contains(people, a.no) AND list_contains(people, b.no) AND a.no < b.no
  AND x.creationDate >= $startDate AND x.creationDate <= $endDate
MATCH (b)-[y:Knows]-(c:Person)
WHERE list_contains(people, c.no) AND b.no < c.no
  AND y.creationDate >= $startDate AND y.creationDate <= $endDate
MATCH (a)-[z:Knows]-(c) WHERE z.creationDate >= $startDate AND z.creationDate <= $endDate
RETURN count(*);

// bi11
MATCH (:Country {name: $country})<-[:IsPartOf_City]-(:City)<-[:PersonIsLocatedIn]-(a:Person)
  -[x:Knows]-(b:Person)-[:PersonIsLocatedIn]->(:City)-[:IsPartOf_City]->(:Country {name: $country})
WHERE a.no < b.no AND x.creationDate >= $startDate AND x.creationDate <= $endDate
WITH a, b
MATCH (b)-[y:Knows]-(c:Person)-[:PersonIsLocatedIn]->(:City)-[:IsPartOf_City]->
  (:Country {name: $country})
WHERE b.no < c.no AND y.creationDate >= $startDate AND y.creationDate <= $endDate
WITH a, c
MATCH (a)-[z:Knows]-(c) WHERE z.creationDate >= $startDate AND z.creationDate <= $endDate
RETURN count(*);

// bi13
MATCH (:Country {name: $country})<-[:IsPartOf_City]-(:City)<-[:PersonIsLocatedIn]-(z:Person)
WHERE z.creationDate < $endDate
OPTIONAL MATCH (z)<-[:HasCreator]-(m:Message) WHERE m.creationDate < $endDate
WITH z, count(m.no) AS messages
WHERE messages < 12 * (date_part('year', $endDate) - date_part('year', z.creationDate))
  + date_part('month', $endDate) - date_part('month', z.creationDate) + 1
WITH collect(z.no) AS zombies
UNWIND zombies AS one
MATCH (z:Person {no: one})
WITH z.no AS no,
  COUNT { MATCH (z)<-[:HasCreator]-(:Message)<-[:Likes]-(f:Person) WHERE f.creationDate < $endDate }
    AS likes,
  COUNT { MATCH (z)<-[:HasCreator]-(:Message)<-[:Likes]-(g:Person) WHERE list_contains(zombies, g.no) }
    AS ofZombies
RETURN no, ofZombies, likes,
  CASE WHEN likes = 0 THEN 0.0 ELSE CAST(ofZombies AS DOUBLE) / CAST(likes AS DOUBLE) END AS score
ORDER BY score DESC, no LIMIT 100;

// bi14
MATCH (:Country {name: $country1})<-[:IsPartOf_City]-(y:City)<-[:PersonIsLocatedIn]-(a:Person)
  -[:Knows]-(b:Person)-[:PersonIsLocatedIn]->(:City)-[:IsPartOf_City]->(:Country {name: $country2})
WITH a, b, y,
  CASE WHEN EXISTS { MATCH (a)<-[:HasCreator]-(:Message)-[:ReplyOf]->(:Message)-[:HasCreator]->(b) }
    THEN 4 ELSE 0 END
  + CASE WHEN EXISTS { MATCH (b)<-[:HasCreator]-(:Message)-[:ReplyOf]->(:Message)-[:HasCreator]->(a) }
    THEN 1 ELSE 0 END
  + CASE WHEN EXISTS { MATCH (a)-[:Likes]->(:Message)-[:HasCreator]->(b) } THEN 10 ELSE 0 END
  + CASE WHEN EXISTS { MATCH (b)-[:Likes]->(:Message)-[:HasCreator]->(a) } THEN 1 ELSE 0 END AS score
WITH y.name AS city,
  max(score * 1000000000000 + (999999 - a.no) * 1000000 + 999999 - b.no) AS best
WITH city, best / 1000000000000 AS score, 999999 - (best / 1000000) % 1000000 AS one,
  999999 - best % 1000000 AS other
RETURN one, other, city, score ORDER BY score DESC, one, other LIMIT 100;

// bi16
MATCH (:Tag {name: $tagA})<-[:HasTag]-(m:Message)-[:HasCreator]->(p:Person)
WHERE m.creationDate >= $dateA AND m.creationDate < $dateA + INTERVAL('1 day')
WITH p, count(*) AS n
WITH collect(p.no) AS authorsA, collect(n) AS countsA
MATCH (:Tag {name: $tagB})<-[:HasTag]-(m:Message)-[:HasCreator]->(p:Person)
WHERE m.creationDate >= $dateB AND m.creationDate < $dateB + INTERVAL('1 day')
WITH authorsA, countsA, p, count(*) AS n
WITH authorsA, countsA, collect(p.no) AS authorsB, collect(n) AS countsB
MATCH (p:Person) WHERE list_contains(authorsA, p.no) AND list_contains(authorsB, p.no)
OPTIONAL MATCH (p)-[:Knows]-(f:Person)
WITH p.no AS no, list_extract(countsA, list_position(authorsA, p.no)) AS a,
  list_extract(countsB, list_position(authorsB, p.no)) AS b,
  sum(CASE WHEN list_contains(authorsA, f.no) THEN 1 ELSE 0 END) AS friendsA,
  sum(CASE WHEN list_contains(authorsB, f.no) THEN 1 ELSE 0 END) AS friendsB
WHERE friendsA <= $friends AND friendsB <= $friends
RETURN no, a, b, a + b AS total ORDER BY total DESC, no LIMIT 20;

// bi18
MATCH (t:Tag {name: $tag})<-[:HasInterest]-(a:Person)-[:Knows]-(f:Person)-[:Knows]-(b:Person)
  -[:HasInterest]->(t)
WHERE a.no <> b.no AND NOT EXISTS { MATCH (a)-[:Knows]-(b) }
RETURN a.no AS one, b.no AS other, count(*) AS n ORDER BY n DESC, one, other LIMIT 20;
