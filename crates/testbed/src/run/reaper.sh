# Ends a run when its owner is gone: $1 is the run's identifier, $2 its folder.
# It has no process of the run as its parent or child, and carries no mark itself.
run=$1
folder=$2
trap '' INT TERM HUP QUIT PIPE
cat >/dev/null 2>&1

is_marked() { grep -qszxF "BED_RUN=$run" "/proc/$1/environ" 2>/dev/null; }

# What carries the mark, and what lost it but still works in a folder of a pod's or of PostgreSQL's: a process may
# clear its environment, and PostgreSQL's children overwrite theirs.
ours() {
	grep -lszxF "BED_RUN=$run" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
	find /proc/[0-9]*/cwd -maxdepth 0 '(' -lname "$folder/pods/*" -o -lname "$folder/postgres/*" ')' 2>/dev/null | cut -d/ -f3
}

# An immediate shutdown lets PostgreSQL give back its shared memory, which SIGKILL would leak. It gives its own
# children five seconds; we give it six.
postmaster=$(head -n 1 "$folder/postgres/data/postmaster.pid" 2>/dev/null)
if [ -n "$postmaster" ] && is_marked "$postmaster"; then
	kill -QUIT "$postmaster" 2>/dev/null
	tries=0
	while is_marked "$postmaster" && [ $tries -lt 300 ]; do
		tries=$((tries + 1))
		sleep 0.02
	done
fi

# A process that is just becoming another program shows no environment for a moment, so one empty look is not
# enough; and what was still writing may have kept the folder from going.
clean=0
rounds=0
while [ $clean -lt 2 ] && [ $rounds -lt 1000 ]; do
	rounds=$((rounds + 1))
	pids=$(ours)
	if [ -n "$pids" ]; then
		kill -KILL $pids 2>/dev/null
		clean=0
	elif rm -rf "$folder" 2>/dev/null; then
		clean=$((clean + 1))
	fi
	[ $clean -ge 2 ] || sleep 0.01
done
