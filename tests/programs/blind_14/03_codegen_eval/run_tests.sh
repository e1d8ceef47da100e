# usage: run_tests.sh PYTHON PROBLEM SOLUTION PORTFILE
# Starts the fixture service that the tests talk to, then runs the solution's tests against it.
"$1" fixture_service.py "$4" &
service=$!
trap 'kill $service' EXIT
until [ -s "$4" ]; do sleep 0.1; done
"$1" check_solution.py --problem "$2" --solution "$3" --port "$(cat "$4")"
