#!/usr/bin/env bash
# Fetch the jars of the Kafka broker that the tests start into .build/kafka/jars, once for each version in the pom.
set -euo pipefail
cd "$(dirname "$0")/.."
pom=tests/kafka/pom.xml
folder=.build/kafka
cmp -s "$pom" "$folder/pom.xml" && exit 0
if ! { command -v java && command -v mvn; } >/dev/null; then
  [ "$(id -u)" = 0 ] || { echo "java and maven are not installed: the Kafka tests will not run" >&2; exit 0; }
  echo "installing java and maven for the Kafka tests"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless maven >/dev/null
fi
rm -rf "$folder" && mkdir -p "$folder"
mvn -q -B -f "$pom" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$PWD/$folder/jars"
cp "$pom" "$folder/pom.xml"
