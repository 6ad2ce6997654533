package zkserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// logbackConfig keeps the server distributions that log with logback at INFO;
// unconfigured, logback writes DEBUG.
const logbackConfig = `<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d [%t] %p %c{0} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="console"/></root>
</configuration>
`

func (s *Server) writeConfig() error {
	if err := os.MkdirAll(s.dataDir(), 0o700); err != nil {
		return err
	}
	files := map[string]string{"zoo.cfg": s.zooCfg(), "logback.xml": logbackConfig}
	if s.peers != nil {
		files["data/myid"] = strconv.Itoa(s.id)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(s.Dir(), name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) zooCfg() string {
	lines := []string{
		"dataDir=" + s.dataDir(),
		"clientPort=" + strconv.Itoa(s.cfg.Port),
		"clientPortAddress=" + s.cfg.Host,
		fmt.Sprintf("tickTime=%d", s.cfg.TickTime.Milliseconds()),
		"maxSessionTimeout=60000",
		// Production's 60 connections per address would refuse the processes of one
		// machine.
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"initLimit=20",
		"syncLimit=5",
	}
	return strings.Join(append(lines, s.peers...), "\n") + "\n"
}

func (s *Server) java() (*exec.Cmd, error) {
	if err := s.writeConfig(); err != nil {
		return nil, err
	}
	args := []string{
		"-Xmx256m",
		"-Dzookeeper.preAllocSize=64", // KiB per transaction log, instead of 64 MiB
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
	}
	if s.cfg.NoSync {
		args = append(args, "-Dzookeeper.forceSync=no")
	}
	if s.cfg.ContainerCheck > 0 {
		args = append(args, fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", s.cfg.ContainerCheck.Milliseconds()))
	}
	args = append(args,
		"-cp", s.Dir()+":"+s.launcher.classpath,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.Dir(), "zoo.cfg"))
	if s.cfg.Namespace == "" {
		return exec.Command(s.launcher.java, args...), nil
	}
	// It becomes the server: its pid is the server's.
	return exec.Command("ip", slices.Concat([]string{"netns", "exec", s.cfg.Namespace, s.launcher.java}, args)...), nil
}
