# Ends a run when its owner is gone: $1 is the run's identifier, $2 its folder.
# It has no process of the run as its parent or child, and carries no mark itself.
run=$1
folder=$2
trap '' INT TERM HUP QUIT PIPE
cat >/dev/null 2>&1

marked() { grep -lszxF "BED_RUN=$run" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }

# An immediate shutdown lets PostgreSQL give back its shared memory, which SIGKILL would leak.
if postmaster=$(head -n 1 "$folder"/postgres/data/postmaster.pid 2>/dev/null); then
	kill -QUIT "$postmaster" 2>/dev/null
	tries=0
	while kill -0 "$postmaster" 2>/dev/null && [ "$(cut -d' ' -f3 "/proc/$postmaster/stat" 2>/dev/null)" != Z ] && [ $tries -lt 100 ]; do
		tries=$((tries + 1))
		sleep 0.02
	done
fi

while pids=$(marked) && [ -n "$pids" ]; do
	kill -KILL $pids 2>/dev/null
	sleep 0.02
done
rm -rf "$folder"
