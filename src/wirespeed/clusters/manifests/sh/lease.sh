# Ends when nobody has touched /lease/renewed for so many seconds.
trap 'exit 0' TERM INT
quiet=0
while [ "$quiet" -lt "$1" ]; do
  sleep @STEP_S@ &
  wait "$!"
  quiet=$((quiet + @STEP_S@))
  if [ -e /lease/renewed ]; then
    rm -f /lease/renewed
    quiet=0
  fi
done
echo "not renewed for $1 s: this environment is taken away"
