// The updates for Kuzu, each some statements of one transaction; then what they have added.

// iu1
CREATE (:Person {no: $person, firstName: $firstName, lastName: $lastName, gender: $gender,
  birthday: $birthday, creationDate: $creationDate, locationIP: $locationIP,
  browserUsed: $browserUsed, email: $email, speaks: $speaks});
MATCH (p:Person {no: $person}), (c:City {no: $city}) CREATE (p)-[:PersonIsLocatedIn]->(c);
MATCH (p:Person {no: $person}) UNWIND $tags AS tag
MATCH (t:Tag {no: tag}) CREATE (p)-[:HasInterest]->(t);
MATCH (p:Person {no: $person}) UNWIND $studies AS s
MATCH (u:University) WHERE u.no = s.university CREATE (p)-[:StudyAt {classYear: s.year}]->(u);
MATCH (p:Person {no: $person}) UNWIND $work AS w
MATCH (c:Company) WHERE c.no = w.company CREATE (p)-[:WorkAt {workFrom: w.year}]->(c);

// iu2
MATCH (p:Person {no: $person}), (m:Message {no: $message})
CREATE (p)-[:Likes {creationDate: $creationDate}]->(m);

// iu3
MATCH (p:Person {no: $person}), (m:Message {no: $message})
CREATE (p)-[:Likes {creationDate: $creationDate}]->(m);

// iu4
CREATE (:Forum {no: $forum, title: $title, creationDate: $creationDate});
MATCH (f:Forum {no: $forum}), (p:Person {no: $person}) CREATE (f)-[:HasModerator]->(p);
MATCH (f:Forum {no: $forum}) UNWIND $tags AS tag
MATCH (t:Tag {no: tag}) CREATE (f)-[:ForumHasTag]->(t);

// iu5
MATCH (f:Forum {no: $forum}), (p:Person {no: $person})
CREATE (f)-[:HasMember {joinDate: $creationDate}]->(p);

// iu6
CREATE (:Message {no: $message, creationDate: $creationDate, content: $content,
  imageFile: $imageFile, length: $length, browserUsed: $browserUsed, locationIP: $locationIP,
  language: $language, isPost: true});
MATCH (m:Message {no: $message}), (p:Person {no: $person}), (f:Forum {no: $forum}),
  (c:Country {no: $country})
CREATE (m)-[:HasCreator]->(p), (f)-[:ContainerOf]->(m), (m)-[:MessageIsLocatedIn]->(c);
MATCH (m:Message {no: $message}) UNWIND $tags AS tag
MATCH (t:Tag {no: tag}) CREATE (m)-[:HasTag]->(t);

// iu7
CREATE (:Message {no: $message, creationDate: $creationDate, content: $content, length: $length,
  browserUsed: $browserUsed, locationIP: $locationIP, isPost: false});
MATCH (m:Message {no: $message}), (p:Person {no: $person}), (o:Message {no: $parent}),
  (c:Country {no: $country})
CREATE (m)-[:HasCreator]->(p), (m)-[:ReplyOf]->(o), (m)-[:MessageIsLocatedIn]->(c);
MATCH (m:Message {no: $message}) UNWIND $tags AS tag
MATCH (t:Tag {no: tag}) CREATE (m)-[:HasTag]->(t);

// iu8
MATCH (p:Person {no: $person}), (o:Person {no: $other})
CREATE (p)-[:Knows {creationDate: $creationDate}]->(o);

// added_friendships
MATCH (a:Person)-[k:Knows]->(b:Person) WHERE k.creationDate >= $since
RETURN a.no AS one, b.no AS other, k.creationDate ORDER BY one, other;

// added_likes
MATCH (p:Person)-[l:Likes]->(m:Message) WHERE l.creationDate >= $since
RETURN p.no AS person, m.no AS message, l.creationDate AS date ORDER BY date, person, message;

// added_forums
MATCH (f:Forum)-[:HasModerator]->(p:Person) WHERE f.creationDate >= $since
OPTIONAL MATCH (f)-[:ForumHasTag]->(t:Tag)
RETURN f.no AS no, f.title, f.creationDate, p.no, coalesce(list_sort(collect(t.no)), []) ORDER BY no;

// added_members
MATCH (f:Forum)-[j:HasMember]->(p:Person) WHERE j.joinDate >= $since
RETURN f.no AS forum, p.no AS person, j.joinDate ORDER BY forum, person;

// added_posts
MATCH (m:Message)-[:HasCreator]->(p:Person), (m)-[:MessageIsLocatedIn]->(c:Country),
  (m)<-[:ContainerOf]-(f:Forum)
WHERE m.isPost AND m.creationDate >= $since
OPTIONAL MATCH (m)-[:HasTag]->(t:Tag)
RETURN m.no AS no, m.creationDate, m.content, m.imageFile, m.length, m.browserUsed, m.locationIP,
  m.language, p.no, c.no, f.no, coalesce(list_sort(collect(t.no)), []) ORDER BY no;

// added_comments
MATCH (m:Message)-[:HasCreator]->(p:Person), (m)-[:MessageIsLocatedIn]->(c:Country),
  (m)-[:ReplyOf]->(o:Message)
WHERE NOT m.isPost AND m.creationDate >= $since
OPTIONAL MATCH (m)-[:HasTag]->(t:Tag)
RETURN m.no AS no, m.creationDate, m.content, m.length, m.browserUsed, m.locationIP, p.no, c.no, o.no,
  coalesce(list_sort(collect(t.no)), []) ORDER BY no;
