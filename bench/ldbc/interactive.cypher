// The interactive reads for Kuzu. A text begins with the name of its read; a second text of the same
// name is another form of it, of which the faster one is measured.

// ic1
MATCH p = (me:Person {no: $person})-[:Knows* SHORTEST 1..3]-(f:Person)
WHERE f.firstName = $firstName AND f.no <> $person
WITH f, length(p) AS distance ORDER BY distance, f.lastName, f.no LIMIT 20
MATCH (f)-[:PersonIsLocatedIn]->(c:City)
OPTIONAL MATCH (f)-[s:StudyAt]->(u:University)-[:OrganisationIsLocatedIn_University]->(uc:City)
WITH f, distance, c, s, u, uc ORDER BY u.name LIMIT 1000
WITH f, distance, c, collect(CASE WHEN u.name IS NULL THEN NULL
  ELSE {name: u.name, year: s.classYear, city: uc.name} END) AS universities
OPTIONAL MATCH (f)-[w:WorkAt]->(o:Company)-[:OrganisationIsLocatedIn_Company]->(oc:Country)
WITH f, distance, c, universities, w, o, oc ORDER BY o.name LIMIT 1000
WITH f, distance, c, universities, collect(CASE WHEN o.name IS NULL THEN NULL
  ELSE {name: o.name, year: w.workFrom, country: oc.name} END) AS companies
RETURN f.no AS no, f.lastName AS lastName, distance, f.birthday, f.creationDate, f.gender,
  f.browserUsed, f.locationIP, f.email, f.speaks, c.name,
  coalesce(universities, []), coalesce(companies, [])
ORDER BY distance, lastName, no;

// ic2
MATCH (me:Person {no: $person})-[:Knows]-(f:Person)<-[:HasCreator]-(m:Message)
WHERE m.creationDate <= $maxDate
RETURN f.no, f.firstName, f.lastName, m.no AS no, coalesce(m.content, m.imageFile),
  m.creationDate AS date ORDER BY date DESC, no LIMIT 20;

// ic2
MATCH (me:Person {no: $person})-[:Knows]-(f:Person)<-[:HasCreator]-(m:Message)
WHERE m.creationDate <= $maxDate
WITH f, m ORDER BY m.creationDate DESC, m.no LIMIT 20
RETURN f.no, f.firstName, f.lastName, m.no AS no, coalesce(m.content, m.imageFile),
  m.creationDate AS date ORDER BY date DESC, no;

// ic3
MATCH (me:Person {no: $person})-[:Knows*1..2]-(f:Person) WHERE f.no <> $person WITH DISTINCT f
MATCH (f)-[:PersonIsLocatedIn]->(:City)-[:IsPartOf_City]->(home:Country)
WHERE home.name <> $countryX AND home.name <> $countryY
WITH f
MATCH (f)<-[:HasCreator]-(m:Message)-[:MessageIsLocatedIn]->(c:Country)
WHERE (c.name = $countryX OR c.name = $countryY)
  AND m.creationDate >= $startDate AND m.creationDate < $endDate
WITH f, sum(CASE WHEN c.name = $countryX THEN 1 ELSE 0 END) AS x,
  sum(CASE WHEN c.name = $countryY THEN 1 ELSE 0 END) AS y
WHERE x > 0 AND y > 0
RETURN f.no AS no, f.firstName, f.lastName, CAST(x AS INT64), CAST(y AS INT64),
  CAST(x + y AS INT64) AS total
ORDER BY total DESC, no LIMIT 20;

// ic4
MATCH (me:Person {no: $person})-[:Knows]-(f:Person)<-[:HasCreator]-(m:Message)-[:HasTag]->(t:Tag)
WHERE m.isPost AND m.creationDate < $endDate
WITH t, count(*) AS posts, min(m.creationDate) AS first WHERE first >= $startDate
RETURN t.name AS name, posts ORDER BY posts DESC, name LIMIT 10;

// ic5
MATCH (me:Person {no: $person})-[:Knows*1..2]-(f:Person) WHERE f.no <> $person WITH DISTINCT f
MATCH (f)<-[e:HasMember]-(o:Forum) WHERE e.joinDate > $minDate
WITH o, f
OPTIONAL MATCH (o)-[:ContainerOf]->(m:Message)-[:HasCreator]->(f)
WITH o, count(m) AS posts ORDER BY posts DESC, o.no LIMIT 20
RETURN o.title, posts ORDER BY posts DESC, o.no;

// ic6
MATCH (me:Person {no: $person})-[:Knows*1..2]-(f:Person) WHERE f.no <> $person WITH DISTINCT f
MATCH (f)<-[:HasCreator]-(m:Message)-[:HasTag]->(t:Tag {name: $tag}) WHERE m.isPost
MATCH (m)-[:HasTag]->(o:Tag) WHERE o.name <> $tag
RETURN o.name AS name, count(*) AS posts ORDER BY posts DESC, name LIMIT 10;

// ic7
MATCH (me:Person {no: $person})<-[:HasCreator]-(m:Message)<-[l:Likes]-(p:Person)
WITH p, max(l.creationDate) AS date ORDER BY date DESC, p.no LIMIT 20
MATCH (me:Person {no: $person})<-[:HasCreator]-(x:Message)<-[l:Likes]-(p) WHERE l.creationDate = date
WITH p, date, min(x.no) AS no
MATCH (m:Message) WHERE m.no = no
OPTIONAL MATCH (p)-[k:Knows]-(me:Person {no: $person})
RETURN p.no AS person, p.firstName, p.lastName, date, no, coalesce(m.content, m.imageFile),
  CAST(floor((to_epoch_ms(date) - to_epoch_ms(m.creationDate)) / 60000) AS INT64), k IS NULL
ORDER BY date DESC, person;

// ic8
MATCH (me:Person {no: $person})<-[:HasCreator]-(m:Message)<-[:ReplyOf]-(c:Message)
  -[:HasCreator]->(p:Person)
RETURN p.no, p.firstName, p.lastName, c.creationDate AS date, c.no AS no, c.content
ORDER BY date DESC, no LIMIT 20;

// ic9
MATCH (me:Person {no: $person})-[:Knows*1..2]-(f:Person) WHERE f.no <> $person WITH DISTINCT f
MATCH (f)<-[:HasCreator]-(m:Message) WHERE m.creationDate < $maxDate
RETURN f.no, f.firstName, f.lastName, m.no AS no, coalesce(m.content, m.imageFile),
  m.creationDate AS date ORDER BY date DESC, no LIMIT 20;

// ic9
MATCH (me:Person {no: $person})-[:Knows*1..2]-(f:Person) WHERE f.no <> $person WITH DISTINCT f
MATCH (f)<-[:HasCreator]-(m:Message) WHERE m.creationDate < $maxDate
WITH f, m ORDER BY m.creationDate DESC, m.no LIMIT 20
RETURN f.no, f.firstName, f.lastName, m.no AS no, coalesce(m.content, m.imageFile),
  m.creationDate AS date ORDER BY date DESC, no;

// ic10
MATCH (me:Person {no: $person})-[:Knows]-(:Person)-[:Knows]-(f:Person)
WHERE NOT EXISTS { MATCH (me)-[:Knows]-(f) } AND f.no <> $person
  AND ((date_part('month', f.birthday) = $month AND date_part('day', f.birthday) >= 21)
    OR (date_part('month', f.birthday) = $nextMonth AND date_part('day', f.birthday) < 22))
WITH DISTINCT f
OPTIONAL MATCH (f)<-[:HasCreator]-(m:Message) WHERE m.isPost
OPTIONAL MATCH (m)-[:HasTag]->(t:Tag)<-[:HasInterest]-(me:Person {no: $person})
WITH f, m, count(t) AS common
WITH f, sum(CASE WHEN m.no IS NULL THEN 0 WHEN common > 0 THEN 1 ELSE -1 END) AS score
ORDER BY score DESC, f.no LIMIT 10
MATCH (f)-[:PersonIsLocatedIn]->(c:City)
RETURN f.no AS no, f.firstName, f.lastName, CAST(score AS INT64) AS score, f.gender, c.name
ORDER BY score DESC, no;

// ic11
MATCH (me:Person {no: $person})-[:Knows*1..2]-(f:Person) WHERE f.no <> $person WITH DISTINCT f
MATCH (f)-[w:WorkAt]->(o:Company)-[:OrganisationIsLocatedIn_Company]->(c:Country {name: $country})
WHERE w.workFrom < $year
RETURN f.no AS no, f.firstName, f.lastName, o.name AS name, w.workFrom AS year
ORDER BY year, no, name DESC LIMIT 10;

// ic12
MATCH (t:Tag)-[:HasType]->(:TagClass)-[:IsSubclassOf*0..30]->(g:TagClass {name: $tagClass})
WITH DISTINCT t
MATCH (me:Person {no: $person})-[:Knows]-(f:Person)<-[:HasCreator]-(c:Message)
  -[:ReplyOf]->(m:Message)-[:HasTag]->(t) WHERE m.isPost
RETURN f.no AS no, f.firstName, f.lastName, list_sort(collect(DISTINCT t.name)),
  count(DISTINCT c.no) AS replies
ORDER BY replies DESC, no LIMIT 20;

// ic13
MATCH (a:Person {no: $one}), (b:Person {no: $other})
OPTIONAL MATCH p = (a)-[:Knows* SHORTEST 1..20]-(b)
RETURN CASE WHEN a.no = b.no THEN 0 ELSE coalesce(length(p), -1) END;

// is1
MATCH (p:Person {no: $person})-[:PersonIsLocatedIn]->(c:City)
RETURN p.firstName, p.lastName, p.birthday, p.locationIP, p.browserUsed, c.no, p.gender,
  p.creationDate;

// is2
MATCH (me:Person {no: $person})<-[:HasCreator]-(m:Message)
WITH m ORDER BY m.creationDate DESC, m.no DESC LIMIT 10
MATCH (m)-[:ReplyOf*0..30]->(r:Message) WITH m, r WHERE r.isPost
MATCH (r)-[:HasCreator]->(p:Person)
RETURN m.no AS no, coalesce(m.content, m.imageFile), m.creationDate AS date, r.no, p.no,
  p.firstName, p.lastName ORDER BY date DESC, no DESC;

// is2
MATCH (me:Person {no: $person})<-[:HasCreator]-(m:Message)
WITH m ORDER BY m.creationDate DESC, m.no DESC LIMIT 10
MATCH (m)-[:ReplyOf*0..30]->(r:Message)<-[:ContainerOf]-(:Forum), (r)-[:HasCreator]->(p:Person)
RETURN m.no AS no, coalesce(m.content, m.imageFile), m.creationDate AS date, r.no, p.no,
  p.firstName, p.lastName ORDER BY date DESC, no DESC;

// is3
MATCH (p:Person {no: $person})-[k:Knows]-(f:Person)
RETURN f.no AS no, f.firstName, f.lastName, k.creationDate AS date ORDER BY date DESC, no;

// is4
MATCH (m:Message {no: $message}) RETURN m.creationDate, coalesce(m.content, m.imageFile);

// is5
MATCH (m:Message {no: $message})-[:HasCreator]->(p:Person) RETURN p.no, p.firstName, p.lastName;

// is6
MATCH (m:Message {no: $message})-[:ReplyOf*0..30]->(r:Message)<-[:ContainerOf]-(f:Forum)
  -[:HasModerator]->(p:Person)
RETURN f.no, f.title, p.no, p.firstName, p.lastName;

// is7
MATCH (m:Message {no: $message})<-[:ReplyOf]-(c:Message)-[:HasCreator]->(p:Person),
  (m)-[:HasCreator]->(a:Person)
OPTIONAL MATCH (a)-[k:Knows]-(p)
RETURN c.no AS no, c.content, c.creationDate AS date, p.no AS person, p.firstName, p.lastName,
  k IS NOT NULL ORDER BY date DESC, person, no;
